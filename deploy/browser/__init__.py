"""The browser that the tests look at WMS2's pages with."""
