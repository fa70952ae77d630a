"""CERN SSO, simulated: an OpenID Connect provider (``allauth.idp.oidc``) on loopback, with users, groups and the device flow."""
