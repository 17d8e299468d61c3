"""After the day of deployment: where the rows that arrive lie, and what the decisions do to them."""
