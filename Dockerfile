# An image that serves one model: docker run -p 8000:8000 -v "$PWD/model.tailwise:/model.tailwise:ro" tailwise
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY src src
# The CPU build of torch is a tenth of the size of the other one; networks for tables predict on the CPU.
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    -c constraints.txt '.[serve]'

FROM python:3.12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --no-create-home --uid 10001 tailwise
COPY --from=build /venv /venv
ENV PATH="/venv/bin:$PATH" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER tailwise
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["tailwise"]
CMD ["serve", "/model.tailwise", "--host", "0.0.0.0", "--port", "8000"]
