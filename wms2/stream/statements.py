"""The statements that give events their places and read them, with Django's ORM and without it (ADR 0029)."""

from __future__ import annotations

CHANNEL = "wms2_events"
#: Events that are given places together.
PORTION = 5000
#: Gives committed events the next places, by a process that has the feed's row locked.
PLACE = """
UPDATE events SET position = %(last)s + fresh.nth
FROM (SELECT id, row_number() OVER (ORDER BY id) AS nth
      FROM (SELECT id FROM events WHERE position IS NULL ORDER BY id LIMIT %(portion)s) unplaced) fresh
WHERE events.id = fresh.id
"""
#: Says that there are so many more places.
CALL = "UPDATE event_feed SET last = last + %(placed)s RETURNING pg_notify(%(channel)s, '')"

UNPLACED = "SELECT EXISTS (SELECT FROM events WHERE position IS NULL)"
FIRST_ROW = "INSERT INTO event_feed (id, last, removed) VALUES (1, 0, 0) ON CONFLICT DO NOTHING"
LOCK = "SELECT last FROM event_feed FOR UPDATE SKIP LOCKED"
ENDS = "SELECT last, removed FROM event_feed"
#: Places rise without holes, and are seen together: what is behind one is complete up to the highest that is found.
BEHIND = """
SELECT events.position, events.kind, events.request_id, events.at, requests.request_name, events.data
FROM events LEFT JOIN requests ON requests.id = events.request_id
WHERE events.position > %(after)s ORDER BY events.position LIMIT %(most)s
"""
