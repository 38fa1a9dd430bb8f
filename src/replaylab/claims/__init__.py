"""Published statements about experience replay, each with the experiment that tests it here."""

from replaylab.claims.catalog import CLAIMS, chosen
from replaylab.claims.claim import Claim, ReplicatedFigure, ReplicationOutcome, overall

__all__ = ["CLAIMS", "Claim", "ReplicatedFigure", "ReplicationOutcome", "chosen", "overall"]
