"""Speed and endurance, each figure beside a floor measured in the same run."""
