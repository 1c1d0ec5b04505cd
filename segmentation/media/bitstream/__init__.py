"""Coded packets: headers, messages, and losses."""
