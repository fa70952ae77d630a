"""The process ``stream``: server-sent events of the feed for many readers over one session of the database (ADR 0029).

It knows no Django: who a reader is and what it may ask the web has judged, which sends it here with a ticket.
"""
