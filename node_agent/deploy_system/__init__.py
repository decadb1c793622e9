"""`python -m node_agent --deploy`: the agent of a deploy system, which keeps nothing on disk and ends with its certificate."""
