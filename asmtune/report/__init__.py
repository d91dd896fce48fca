"""Records for people and for programs: tables, JSON, CSV, progress."""
