"""Results for people and other programs: terminal output, exported files and the page of an explanation."""
