"""From a space to what is worth timing, and why."""
