"""Where tokens come from: typed requests down, typed batch frames up."""
