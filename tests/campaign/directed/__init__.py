"""Small scenes that lead straight to what a planted bug breaks, judged by the campaign's own checkers."""
