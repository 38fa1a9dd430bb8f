"""Published statements about experience replay, each with the experiment that tests it here."""

from replaylab.claims.catalog import CLAIMS, chosen
from replaylab.claims.finding import Claim, Finding, Verdict, overall

__all__ = ["CLAIMS", "Claim", "Finding", "Verdict", "chosen", "overall"]
