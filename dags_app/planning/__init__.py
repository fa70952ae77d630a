"""Planning: what a request asks for and what is left of it become jobs, work units, blocks and a DAG directory.

Pure Python over the values of ``specs``: no Django, no service, no clock. Only ``writer`` touches a disk.
"""
