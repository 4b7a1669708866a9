"""Matchers: which stored rows make results with a newcomer, one file for each kind of join."""
