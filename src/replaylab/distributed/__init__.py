"""Past one machine, on Ray: studies whose populations run on its workers, and a replay in shards."""
