"""The pages for people: all requests, one request, and what stands on them. Reads only."""
