"""A real XRootD server, which is the storage of one mock site, and the clients of its worker nodes."""
