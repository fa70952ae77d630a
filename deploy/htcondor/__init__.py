"""A loopback HTCondor pool of three mock CMS sites: installation, configuration and an example DAG."""
