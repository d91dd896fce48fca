"""AI-Bench8."""
