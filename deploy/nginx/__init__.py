"""nginx as a front end that asks browsers and programs for client certificates: what it sends on, and Debian's for the tests."""
