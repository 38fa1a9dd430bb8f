"""The shards: what each is, what carries its calls, and how the learner knows them."""
