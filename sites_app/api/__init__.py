"""REST of sites_app: sites, their storage and bans."""
