"""What handlers share: the registry, dispatch, the request's context, and helpers of several APIs."""
