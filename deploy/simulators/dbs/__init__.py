"""DBS (dbs2go), reader and writer: what ``contracts`` measured of it, over SQLite.

``errors`` codes and the error body · ``names`` lexicon · ``payloads`` typed decoding of bodies · ``schema`` tables ·
``reference`` tiers, eras, configs · ``datasets`` ``files`` ``bulkblocks`` writes · ``reads`` GET queries ·
``dump`` blockdump · ``generate`` large input datasets · ``service`` HTTP.
"""
