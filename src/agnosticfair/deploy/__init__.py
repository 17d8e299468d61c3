"""A federation of real sites: the folder that describes it, the coordinator's run, and a site's process."""
