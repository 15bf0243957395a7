"""The OpenAPI description is that of the model."""

from tests.serving.conftest import Running


def test_the_description_of_predict(running: Running) -> None:
    found = running.client.get("/openapi.json").json()
    assert found["openapi"].startswith("3.1") and set(found["paths"]) == {
        "/predict",
        "/health",
        "/metrics",
        "/schema",
    }
    predict = found["paths"]["/predict"]["post"]
    body = predict["requestBody"]["content"]["application/json"]
    assert body["schema"]["properties"]["rows"]["items"] == running.service.batcher.schema.to_json()
    assert body["schema"]["properties"]["rows"]["maxItems"] == 1000
    assert running.client.post("/predict", json=body["example"]).status_code == 200
    assert {"200", "400", "413", "422", "503"} <= set(predict["responses"])
    answer = predict["responses"]["200"]["content"]["application/json"]["schema"]
    named = answer["properties"]["predictions"]["items"]["properties"]
    sent = running.client.post("/predict", json=body["example"]).json()
    assert set(named) == set(sent["predictions"][0]) and set(answer["properties"]) == set(sent)
