"""The outside world scripted at adapter level: schedd, DBS, Rucio, ConfigCache, clock. Lives in tests only.

``world.World`` installs all of it through ``wms2.adapters.factory`` and is what tests hold on to.
"""
