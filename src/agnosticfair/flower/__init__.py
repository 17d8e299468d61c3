"""A federation of real sites: what a site answers, the Flower app, and the folder that starts it."""
