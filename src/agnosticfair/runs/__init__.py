"""What a run leaves behind: provenance, rounds, tracking, export."""
