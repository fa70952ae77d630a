"""ReqMgr2, both ways (ADR 0023): ``reports`` what is reported to it, ``taking`` how staged requests of our team become ours,
``following`` what others do to them there. Refused ones and what was last seen are in ``requests_app.models``.
"""
