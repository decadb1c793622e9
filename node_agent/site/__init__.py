"""The agent of a site: reaches the BMCs of its machines while it holds the site's lease (`python -m node_agent --site`)."""
