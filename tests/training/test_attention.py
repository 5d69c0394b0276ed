"""Attention in blocks of a tree gives what whole attention gives."""

import pytest

from tiny_hf import lessons, tiny_llama

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


def packs_of(tiny, count=3):
    from multihop.lms.weights import load_causal
    from multihop.training import loop

    model, tokenizer = load_causal(tiny, torch.float32, "sdpa")
    return model, tokenizer, loop.packed(lessons(count), tokenizer, 400)


def test_losses_and_gradients_are_those_of_whole_attention(tiny) -> None:
    from torch.nn.functional import cross_entropy

    from multihop.training import attention, loop

    found = []
    for rows in (0, 7, 1000):
        model, _, packs = packs_of(tiny)
        assert len({len(pack) for pack in packs}) == 1
        uneven = [packs[0], *loop.packed(lessons(2)[1:], packs_of(tiny)[1], 60), packs[2]]
        inputs = loop._Collator("sdpa")(uneven)  # padded
        more = {}
        if rows:
            assert loop.sees_trees(model)
            assert model.config._attn_implementation == attention.NAME
            more["tree"] = attention.blocks(inputs["attention_mask"], torch.float32, rows)
            if rows == 7:
                assert any(len(block.keys) < block.last for block in more["tree"])
        out = model(
            input_ids=inputs["input_ids"],
            position_ids=inputs["position_ids"],
            attention_mask=inputs["attention_mask"],
            **more,
        ).logits
        kept = inputs["kept"][inputs["columns"]]
        loss = cross_entropy(out[inputs["rows"], kept], inputs["tokens"])
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        found.append((loss.item(), gradients))
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        for name, gradient in gradients.items():
            assert torch.allclose(gradient, found[0][1][name], rtol=1e-3, atol=1e-5), name


def test_a_packed_example_is_predicted_as_if_it_were_alone(tiny) -> None:
    from multihop.training import attention, loop
    from multihop.training.packing import tokenize

    model, tokenizer, packs = packs_of(tiny, 1)
    loop.sees_trees(model)
    assert len(packs) == 1
    inputs = loop._Collator("sdpa")(packs)
    with torch.no_grad():
        together = model(
            input_ids=inputs["input_ids"],
            position_ids=inputs["position_ids"],
            attention_mask=inputs["attention_mask"],
            tree=attention.blocks(inputs["attention_mask"], torch.float32, 16),
        ).logits[0]
        places = {}
        for place, parent in enumerate(packs[0].parents):
            places[parent, packs[0].ids[place]] = place
        for example in tokenize(lessons(1)[0], tokenizer):
            whole = example.prompt + example.completion
            alone = model(input_ids=torch.tensor([whole])).logits[0]
            at = -1
            for number, token in enumerate(whole[:-1]):
                at = places[at, token]
                assert torch.allclose(together[at], alone[number], atol=1e-4)


def test_without_a_tree_the_whole_square_is_computed(tiny) -> None:
    from multihop.training import loop

    model, _, _ = packs_of(tiny)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        assert loop.sees_trees(model)
        assert torch.allclose(before, model(input_ids=ids).logits, atol=1e-5)
