"""Test doubles of providers and servers, on loopback addresses."""
