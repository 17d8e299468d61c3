"""What a run leaves behind: provenance and exports."""
