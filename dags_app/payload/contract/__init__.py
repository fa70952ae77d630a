"""Names, schemas, readers and writers of the side files, and what all commands share. ``docs/payload-contract.md``."""
