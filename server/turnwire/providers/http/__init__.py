"""HTTP to model servers, below the SDKs' clients."""
