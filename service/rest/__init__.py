"""HTTP of a worker: health, metrics, and (with the control plane) Connect's REST."""
