"""How WMS2 is set up and run: bootstrap, process stack, HTCondor pool, Rucio server and service simulators."""
