"""The study file: what it may say, and what is wrong with one."""
