"""Feedback in the form that a sampler takes."""


def priorities_or_errors(sampler, values):
    """Return the arguments of `update_priorities` beside the ids: priorities where they are used, else TD errors."""
    return {"priority" if sampler.takes_priorities else "td_error": values}
