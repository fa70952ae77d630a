"""The demo's request documents and the programs that show and verify it."""
