"""HTTP to model servers, below the SDKs' clients: whatever a server sends is bounded here, before an SDK reads it."""
