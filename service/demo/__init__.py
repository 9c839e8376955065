"""``./headrace demo``: the main job on real parts, and the proof that its accounts balance."""
