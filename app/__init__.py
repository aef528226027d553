"""The top floor: assembles settings, engines, processors and routers into one service."""
