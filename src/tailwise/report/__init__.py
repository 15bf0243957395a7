"""Pictures and pages that show whether the tail can be trusted."""
