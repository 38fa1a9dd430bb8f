"""The regression kit: two commits, built on one machine, must compute the same values (`make golden BASE=<commit>`)."""
