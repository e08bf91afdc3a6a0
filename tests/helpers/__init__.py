"""Makers of problems and ways to look at results, for all tests: no test file imports another one."""
