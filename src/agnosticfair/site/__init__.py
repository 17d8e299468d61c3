"""A site's own judgement: which requests it answers, by its policy, its schema and its list of sites."""
