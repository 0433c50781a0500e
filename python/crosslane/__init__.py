"""Crosslane's command line: finds what belongs together, starts it, and formats what the C++ side reports."""

__version__ = "0.1.0"
