"""ReqMgr2 as far as its clients use it: create, assign, query, follow and clone requests.

``states`` the transition table · ``others`` what agents do ·
``lexicon`` name rules · ``kinds`` ``arguments`` what may be sent · ``checking``
refusing the rest · ``outputs`` datasets, LFN bases, parentage · ``creation`` ``updates`` the two writes · ``store``
SQLite with the couch views · ``service`` HTTP.
"""
