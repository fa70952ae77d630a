"""What merges load from a release, for the simulated cmsRun."""
